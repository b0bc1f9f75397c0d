"""Jupyter kernels in forks of a warm snapshot.

``ForkdProvisioner`` runs a kernelspec's kernel in a sandbox, for any Jupyter front end. ``forkd_jupyter.interpreter``
is a kernel for snapshots without ipykernel: it evaluates cells in the warm interpreter.
"""
from .install import install
from .provisioner import ForkdProvisioner

__all__ = ["ForkdProvisioner", "install"]
