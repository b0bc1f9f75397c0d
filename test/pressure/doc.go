// Package pressure proves that a sandbox takes only its share: two hundred children, of which one in
// ten does its worst at once, and the others answer all the same. It runs against a real daemon with
// real VMs, two minutes of siege in `make test` and longer in a soak. What a limit says and how it is
// refused is tested in test/e2e.
package pressure
