"""Cuts the power of a mounted ext4: the file system is shut down where it stands, as if the machine went dark.

Usage: power_cut.py MOUNTPOINT FLAG, where FLAG is 1 (the journal is flushed first) or 2 (it is not).
"""

import fcntl
import os
import struct
import sys

FS_IOC_SHUTDOWN = 0x8004587D

mountpoint, flag = sys.argv[1], int(sys.argv[2])
directory = os.open(mountpoint, os.O_RDONLY)
fcntl.ioctl(directory, FS_IOC_SHUTDOWN, struct.pack("I", flag))
