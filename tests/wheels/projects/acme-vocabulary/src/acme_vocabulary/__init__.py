"""A feed reader that brings words of its own into the log."""

from acme_vocabulary.plugin import AcmeFeed
from acme_vocabulary.words import Citation, FeedPolled, FeedSource, Poll, Quiet

__all__ = ["AcmeFeed", "Citation", "FeedPolled", "FeedSource", "Poll", "Quiet"]
