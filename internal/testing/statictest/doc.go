// Package statictest is for tests whose own program is executed where there is no C library, or has
// to make a system call in all of its threads, which Go refuses of a program that is linked to one. A
// test binary that `go test` has linked so where there is a C compiler is built anew without, and
// runs the tests instead. Only tests may import it. The trap: it replaces the process of the tests,
// so that it comes first in TestMain, but after what else the program may be.
package statictest
