"""Kernels of CUDA devices: each is used only where it has proved itself on that machine.

Every operator that has a kernel of ours has a composed form too, in operations of torch. Which one
a call takes is decided here::

    cuda_extension  loads the kernels, or says why it does not
    choice      takes the kernel or the composed form, and registers that for CUDA
    verdicts    what a machine's self-checks found: asked for once, kept in a folder of the user
    self_check  runs in a child process: small cases through both forms, compared and timed
    doctor      versions, devices and verdicts, for people

"""

from simcore._kernels import choice as choice
