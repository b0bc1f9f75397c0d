// Package kvmtest is for tests that need a real KVM: they run on a host whose
// KVM is usable and in the test bench, and skip elsewhere. It owns the meaning
// of FORKD_TEST_KVM, FORKD_TEST_FIXTURES and FORKD_TEST_MACHINE. Only tests may
// import it; `make test` finds the packages to run in the bench by what skips elsewhere. The trap: with FORKD_TEST_KVM=1 a
// missing KVM fails, so a test must not probe for it by itself and skip.
package kvmtest

import (
	"os"
	"path/filepath"
	"testing"
)

// A mark begins the reason of every skip made here: SkipMark of tests that run
// where KVM is, MachineMark of tests that drive a machine from outside, SoakMark of
// tests of a soak.
const (
	SkipMark    = "kvmtest:"
	MachineMark = "machinetest:"
	SoakMark    = "soaktest:"
)

// SoakVariable is set in a soak, to how long tests go on that could go on for ever.
const SoakVariable = "FORKD_TEST_SOAK"

// Soak skips a test that is only worth its minutes in a soak (make soak).
func Soak(t testing.TB) {
	t.Helper()
	if os.Getenv(SoakVariable) == "" {
		t.Skip(SoakMark, "takes minutes; `make soak` runs it")
	}
}

// Require skips the test unless FORKD_TEST_KVM=1 says that KVM is to be used;
// then a missing one is a failure.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv("FORKD_TEST_KVM") != "1" {
		t.Skip(SkipMark, "needs a usable KVM; `make test` runs it in the bench")
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("FORKD_TEST_KVM=1, but there is no KVM: %v", err)
	}
	f.Close()
}

// Fixture returns the path of a file that `make fixtures` builds: a kernel, an
// initramfs, a root image. Call it after Require; a missing file is a failure.
func Fixture(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("FORKD_TEST_FIXTURES")
	if dir == "" {
		t.Fatalf("FORKD_TEST_FIXTURES is not set, and this test needs %s (make fixtures)", name)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil { // #nosec G703 -- whoever runs the tests names the folder
		t.Fatalf("fixture %s: %v (make fixtures)", name, err)
	}
	return path
}

// Machine returns the name of a running machine that the test may use, but not stop. It skips the test unless FORKD_TEST_MACHINE names one.
func Machine(t testing.TB) string {
	t.Helper()
	name := os.Getenv("FORKD_TEST_MACHINE")
	if name == "" {
		t.Skip(MachineMark, "needs QEMU and some seconds; `make test` runs it")
	}
	return name
}
