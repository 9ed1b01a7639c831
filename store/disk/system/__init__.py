"""What the store uses of the operating system: one facility a module, each with a portable twin.

A module picks the Linux way or its twin once, when it is imported (`warren.portable.IS_PORTABLE`). With
`WARREN_PORTABLE=1` in the environment the twins run on Linux too, so the tests there cover what other systems use.
"""
