package live

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// saved is a machine on disk.
type saved struct {
	memory *os.File
	state  []byte
}

// save pauses a machine and saves it.
func (g *guestVM) save() saved {
	g.t.Helper()
	if err := g.Pause(); err != nil {
		g.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(g.t.TempDir(), "memory"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { f.Close() })
	state, err := g.SaveState()
	if err != nil {
		g.t.Fatal(err)
	}
	n, err := g.SaveMemory(f)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Logf("saved %d KiB of memory, %d bytes of state", n>>10, len(state))
	return saved{f, state}
}

// blueprint returns the configuration for restoring the saved machine into a shell, with its own
// disks.
func (s saved) blueprint(t *testing.T, into *Machine, cid uint32, disks ...vmm.Disk) vmm.RestoreConfig {
	t.Helper()
	memory := []extent.Extent{{File: s.memory, Length: into.mem.Size()}}
	return vmm.RestoreConfig{Memory: memory, State: memoryFile(t, s.state), CID: cid, Disks: disks}
}

// restore loads a saved machine into a fresh shell of its shape.
func (s saved) restore(t *testing.T, like *guestVM) (*guestVM, error) {
	t.Helper()
	g := newShell(t, like.shape)
	_, err := g.Restore(s.blueprint(t, g.Machine, 4))
	return g, err
}

var countLine = regexp.MustCompile(`(?m)^count (\d+) uptime (\d+)\r?\n`)

// counts returns the numbers and uptimes on a console.
func (g *guestVM) counts() (numbers, uptimes []int) {
	for _, m := range countLine.FindAllStringSubmatch(g.text(), -1) {
		n, _ := strconv.Atoi(m[1])
		u, _ := strconv.Atoi(m[2])
		numbers, uptimes = append(numbers, n), append(uptimes, u)
	}
	return numbers, uptimes
}

func TestRestoredGuestsGoOnWhereTheyStood(t *testing.T) {
	for _, cpus := range []int{1, 2} {
		t.Run(strconv.Itoa(cpus)+" vCPUs", func(t *testing.T) {
			parent := bootRole(t, "count", shape(256, cpus))
			parent.waitFor("count 5 ")
			s := parent.save()
			before, uptimes := parent.counts()
			last, uptime := before[len(before)-1], uptimes[len(uptimes)-1]
			time.Sleep(2 * time.Second) // elapses: it must not pass in the children
			for range 3 {
				restored := time.Now()
				child, err := s.restore(t, parent)
				if err != nil {
					t.Fatal(err)
				}
				child.waitFor("count " + strconv.Itoa(last+5) + " ")
				// The parent's last line may be cut, so the child's first whole one may be the
				// second.
				n, u := child.counts()
				elapsed := int(time.Since(restored).Milliseconds()) + 500
				if n[0] > last+2 || u[0]-uptime > elapsed || u[0] < uptime {
					t.Errorf("parent stopped at count %d, uptime %d ms; child went on at %d, %d ms", last, uptime, n[0], u[0])
				}
			}
			// The save did not harm the source.
			if _, err := parent.Resume(); err != nil {
				t.Fatal(err)
			}
			parent.waitFor("count " + strconv.Itoa(last+5) + " ")
		})
	}
}

func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	parent := bootRole(t, "count", shape(256, 1))
	parent.waitFor("count 1 ")
	good := parent.save()
	t.Run("another shape", func(t *testing.T) {
		other := newShell(t, shape(128, 1))
		_, err := other.Restore(vmm.RestoreConfig{Memory: []extent.Extent{{Length: other.mem.Size()}}, State: memoryFile(t, good.state)})
		if err == nil || !strings.Contains(err.Error(), "shape") {
			t.Fatalf("got %v, want an error about the shape", err)
		}
	})
	t.Run("a flipped byte", func(t *testing.T) {
		bad := saved{good.memory, bytes.Clone(good.state)}
		bad.state[len(bad.state)/2] ^= 1
		if _, err := bad.restore(t, parent); err == nil {
			t.Fatal("a damaged state was restored")
		}
	})
	t.Run("cut short", func(t *testing.T) {
		bad := saved{good.memory, good.state[:len(good.state)-100]}
		if _, err := bad.restore(t, parent); err == nil {
			t.Fatal("a state cut short was restored")
		}
	})
}
