package debtool

import (
	"os"
	"path/filepath"
	"sync"
)

// installScript is the place of scripts/deps.sh in an installation, from the directory of the
// programs (scripts/wheels.sh).
const installScript = "../share/forkd/scripts/deps.sh"

// Installer returns the command that installs all missing Debian packages: make deps in a source
// tree, or the script of an installation without one.
var Installer = sync.OnceValue(func() string {
	self, err := os.Executable()
	if err != nil {
		return "make deps"
	}
	return installerFor(filepath.Dir(self))
})

func installerFor(programs string) string {
	script := filepath.Join(programs, installScript)
	if _, err := os.Stat(script); err != nil {
		return "make deps"
	}
	return "sh " + script
}
