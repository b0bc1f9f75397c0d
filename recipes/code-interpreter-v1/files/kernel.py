"""Starts IPython's kernel with forkd_kernel loaded from beside this file, but not from user code's path."""
import os
import sys

import forkd_kernel  # noqa: F401  for --ext, while its folder is still in the path

sys.path.remove(os.path.dirname(os.path.abspath(__file__)))

from ipykernel import kernelapp  # noqa: E402

kernelapp.launch_new_instance()
