"""The management process as the node sees it: how it is started, configured and ended."""
