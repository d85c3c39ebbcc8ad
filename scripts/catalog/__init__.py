"""The generated reference: a static model of the workspace, and the pages made from it."""
