// Package testbench is the test bench: it runs a Go package's test binary in a
// machine, for `go test -exec`, with its test data and fixtures beside it. It
// owns the files it puts on the appliance's data disk, and the time limit. It
// does not build anything and does not judge the tests; the exit code is
// theirs. The trap: only the package's testdata directory travels, so a test
// that reads other files of the source tree does not find them.
package testbench
