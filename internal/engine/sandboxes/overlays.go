package sandboxes

import "golang.org/x/sys/unix"

// OverlayBytes returns the disk space used by an owner's sandboxes for writes to their disks since
// the last snapshot of each. It calls stat once per file. A disk has one file, or two while it is
// branched.
func (t *Table) OverlayBytes(owner string) (sum int64) {
	for _, s := range t.All() {
		disks := s.Disks()
		if disks == nil || s.Info().Owner != owner {
			continue
		}
		for _, path := range disks.Paths() {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil { // otherwise it was just removed
				sum += st.Blocks * 512 // stat(2)
			}
		}
	}
	return sum
}
