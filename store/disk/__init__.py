"""The files that the store writes: the interface to a disk, real, read-only and faulty disks, and damage in files."""
