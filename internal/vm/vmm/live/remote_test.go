package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A machine ends when the process behind one of its files has ended. A closed file stands for one here, because it has no
// answer either. Files of the host's disk are not asked for.
func TestAMachineEndsWithItsRemoteFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "layer"))
	if err != nil {
		t.Fatal(err)
	}
	var r remotes
	if err := r.keep(vmm.RestoreConfig{Memory: []extent.Extent{{File: f}, {File: f}}, Disks: []vmm.Disk{{File: f}}}); err != nil {
		t.Fatal(err)
	}
	if len(r.files) != 0 {
		t.Errorf("%d local files are watched", len(r.files))
	}
	r.files = []*os.File{f}
	if why := r.failed(); why != "" {
		t.Errorf("a file that answers has failed: %s", why)
	}
	f.Close()
	ends := make(chan vmm.Exit, 1)
	r.start(func(e vmm.Exit) { ends <- e })
	defer r.end()
	if e := <-ends; e.Kind != vmm.ExitFault || !strings.Contains(e.Reason, "has ended") {
		t.Errorf("it ended with %+v", e)
	}
}
