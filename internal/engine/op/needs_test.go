package op

import (
	"testing"

	"github.com/forkd/forkd/internal/store/snapshot"
)

func TestTheDiskOfAChildIsTheSumOfItsDisks(t *testing.T) {
	for _, c := range []struct {
		name  string
		disks []int64
		want  int64
	}{{"no disk", nil, 0}, {"one", []int64{5 << 30}, 5 << 30}, {"two", []int64{1 << 30, 3}, 1<<30 + 3}} {
		m := &snapshot.Manifest{}
		for _, bytes := range c.disks {
			m.Disks = append(m.Disks, snapshot.Disk{Bytes: bytes})
		}
		if got := diskBytes(m); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}
