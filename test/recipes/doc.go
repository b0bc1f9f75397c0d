// Package recipes runs recipes that take too long for `make test` over real VMs: container engines
// in a sandbox. `make test-recipes` runs it.
package recipes
