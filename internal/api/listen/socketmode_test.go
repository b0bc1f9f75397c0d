package listen

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestTheSocketIsOpenToAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to any group")
	}
	path := filepath.Join(t.TempDir(), "s")
	group := uint32(54321)
	l, err := listenUnix(t.Context(), path, &group)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o660 || st.Sys().(*syscall.Stat_t).Gid != group {
		t.Errorf("the socket is %v, %v", st, err)
	}
}
