"""The write-ahead journal of a virtual host: appending, group commit, retiring files, and replay."""
