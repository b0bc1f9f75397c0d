// Package e2b has E2B's own packages, unmodified, run programs against this server: natively,
// over an engine whose guests are agents on this host, and with real VMs. It owns the programs
// (testdata) and the pins of the packages' versions. The packages come from PyPI and npm once,
// by scripts/e2b-sdks.sh, into .cache/e2b; without them the tests skip.
package e2b
