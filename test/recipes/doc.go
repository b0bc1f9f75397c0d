// Package recipes builds the recipes that take too long for `make test`, and uses them in real VMs: each is
// forked 20 times and every child works. Container engines run in a sandbox. `make test-recipes` runs it.
package recipes
