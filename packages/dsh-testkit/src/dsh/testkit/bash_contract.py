"""What every provider of the bash seam has to do; the suite comes with `dsh-bash`.

from dsh.testkit.bash_contract import BashContract
from my_wheel import MyBash


class TestMyBash(BashContract):
provider = MyBash
"""

from dsh.bash.testing import BashContract, bash_app

__all__ = ["BashContract", "bash_app"]
