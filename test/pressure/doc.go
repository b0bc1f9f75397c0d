// Package pressure proves that a sandbox takes only its share: of two hundred children one in ten
// attacks, all in parallel, and the others still answer. It runs against a real daemon with real
// VMs, with two minutes of siege in `make test` and more in a soak. test/e2e tests the limits'
// values and errors.
package pressure
