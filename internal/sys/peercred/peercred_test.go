package peercred

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The kernel reports the groups of a peer; a process of this user with two more groups connects.
func TestMembersOfAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take groups")
	}
	path := filepath.Join(t.TempDir(), "s")
	group := uint32(54321)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	old, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Setgroups(old)
	for _, c := range []struct {
		groups []int
		want   bool
	}{{[]int{1, 2}, false}, {[]int{1, 54321}, true}, {manyGroups(54321), true}, {manyGroups(7), false}} {
		if err := syscall.Setgroups(c.groups); err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := Of(server, &group); !ok || p.Member != c.want {
			t.Errorf("with %d groups: %+v, %v", len(c.groups), p, ok)
		}
		if p, ok := Of(server, nil); !ok || p.Member {
			t.Errorf("without a group: %+v, %v", p, ok)
		}
		client.Close()
		server.Close()
	}
}

// manyGroups returns more groups than fit into the first buffer, the last one being last.
func manyGroups(last int) (all []int) {
	for i := range 300 {
		all = append(all, 1000+i)
	}
	return append(all, last)
}
