package guest

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// someSmaps contains the VMM's heap, guest memory (a base, a diff over its middle, a part without a
// layer, and a layer with a deleted file), and the root disk's file.
const someSmaps = `c000000000-c000400000 rw-p 00000000 00:00 0                    [anon: Go: heap]
Size:               4096 kB
Pss:                 300 kB
Shared_Clean:          7 kB
Anonymous:           300 kB
7f0000000000-7f0010000000 rw-p 00000000 08:01 42                   /store/layers/0123456789abcdef0123456789abcdef
Pss:                1000 kB
Shared_Clean:       5000 kB
Shared_Dirty:         20 kB
Private_Dirty:       900 kB
Shared_Hugetlb:        0 kB
Anonymous:           900 kB
7f0010000000-7f0018000000 rw-p 00000000 00:00 0
Pss:                   8 kB
Shared_Clean:          0 kB
Anonymous:             8 kB
7f0018000000-7f0020000000 rw-p 00000000 08:01 43                   /store/layers/fedcba9876543210fedcba9876543210 (deleted)
Pss:                  10 kB
Shared_Clean:        100 kB
Anonymous:             4 kB
7f0020000000-7f0030000000 r--p 00000000 08:01 44                   /store/snapshots/a/disk0
Pss:                   1 kB
Shared_Clean:         50 kB
Anonymous:             0 kB
`

func TestMemoryUseFromSmaps(t *testing.T) {
	use, err := parseSmaps(strings.NewReader(someSmaps), "/store/layers/")
	want := sandbox.MemoryUse{VMMAnonKiB: 300, GuestDirtyKiB: 912, PSSKiB: 1319, GuestSharedKiB: 5120}
	if err != nil || use != want {
		t.Errorf("%+v, %v, want %+v", use, err, want)
	}
	if _, err := parseSmaps(strings.NewReader("1000-2000 rw-p 0 00:00 0 \nPss: many kB\n"), "/"); err == nil {
		t.Error("what is no number was read")
	}
	if _, err := parseSmaps(strings.NewReader("nowhere rw-p 0 00:00 0 \n"), "/"); err == nil {
		t.Error("a range that is none was read")
	}
}
