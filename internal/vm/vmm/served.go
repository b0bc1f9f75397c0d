package vmm

import (
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/fusefs"
)

// Served returns the files of the memory and the disks whose content may still have to be fetched. The files stay the
// configuration's.
func (c RestoreConfig) Served() (files []*os.File) {
	lists := [][]extent.Extent{c.Memory}
	for _, d := range c.Disks {
		lists = append(lists, d.Base, []extent.Extent{{File: d.File}})
	}
	seen := map[*os.File]bool{nil: true}
	for _, list := range lists {
		for _, e := range list {
			if seen[e.File] {
				continue
			}
			seen[e.File] = true
			if fusefs.Has(e.File) {
				files = append(files, e.File)
			}
		}
	}
	return files
}
