// Package compile makes filters of system calls out of lists of them. It runs when
// a list has changed, in a test of package seccomp, and in no program: forkd's have
// what it makes. Calls and constants that lists may name are in names.go; it knows x86-64 only.
//
// A list is text, a line each:
//
//	default kill              # or allow: what becomes of calls that are not listed
//	read                      # a call, and why
//	mmap arg2 & PROT_EXEC == 0
//	ioctl arg1 in KVM_RUN KVM_GET_REGS
//	clone arg0 == CLONE_VM|CLONE_THREAD and arg1 == 0
//	clone3 -> ENOSYS          # it fails with that
//
// Conditions of one line hold together; of several lines for a call one is enough. What is
// listed is allowed, or killed where the default is to allow. Arguments are compared in
// all of their 64 bits.
package compile
