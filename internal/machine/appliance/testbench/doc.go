// Package testbench runs a Go package's test binary in a machine, for `go test -exec`, with its test data and
// fixtures. It owns its files on the appliance's data disk, and the time limit. It does not build anything or
// interpret the tests; the exit code is theirs. Beware: only the package's testdata directory is uploaded, so a
// test that reads other files of the source tree does not find them.
package testbench
