// Package compile compiles lists of system calls to filters. It runs in a test of package seccomp
// when a list has changed, and is not part of any program: forkd's programs contain its output.
// The calls and constants that lists may name are in names.go. It supports x86-64 only.
//
// A list is text with one entry per line:
//
//	default kill              # or allow: the action for calls that are not listed
//	read                      # a call, and why
//	mmap arg2 & PROT_EXEC == 0
//	ioctl arg1 in KVM_RUN KVM_GET_REGS
//	clone arg0 == CLONE_VM|CLONE_THREAD and arg1 == 0
//	clone3 -> ENOSYS          # it fails with this error
//
// All conditions of a line must hold; if a call has several lines, one of them is enough. A listed
// call is allowed, or killed if the default is to allow. All 64 bits of an argument are compared.
package compile
