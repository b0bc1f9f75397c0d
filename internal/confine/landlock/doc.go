// Package landlock restricts a process's access to files, TCP and signals with the kernel's Landlock. It owns the
// kernel's structures, and knows the features of each interface version. The callers choose the restrictions:
// package jail for a VMM, package selfbox for a program itself. Beware: a restriction applies to a thread, and to
// threads and processes that it starts later.
package landlock
