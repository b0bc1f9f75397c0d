package sandboxes

import "golang.org/x/sys/unix"

// OverlayBytes is the room that an owner's sandboxes take of the store with what they have written to
// their disks since the last snapshot of each. It asks the file system once for each of their files,
// of which a disk has one, or two while it is branched.
func (t *Table) OverlayBytes(owner string) (sum int64) {
	for _, s := range t.All() {
		disks := s.Disks()
		if disks == nil || s.Info().Owner != owner {
			continue
		}
		for _, path := range disks.Paths() {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil { // else it is gone just now, and takes nothing
				sum += st.Blocks * 512 // stat(2)
			}
		}
	}
	return sum
}
