package e2b

// Versions of E2B's packages that the tests run: three generations (docs/e2b.md). They are the
// ones that scripts/e2b-sdks.sh installs.
var (
	pythonVersions = []string{"2.45.1", "2.55.0", "2.63.0"}
	nodeVersions   = []string{"2.45.0", "2.51.0"}
	// The newest build templates, too.
	newestPython = pythonVersions[len(pythonVersions)-1]
	newestNode   = nodeVersions[len(nodeVersions)-1]
)
