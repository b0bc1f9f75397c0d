package e2e

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/images/initramfs"
)

// beInit acts as a guest without an agent: this binary is its only program.
func beInit() {
	fmt.Println("e2e: waiting for something that never happens")
	for {
		time.Sleep(time.Hour)
	}
}

// ownInitrd returns the path of an initramfs with this binary as its /init.
func ownInitrd(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var cpio bytes.Buffer
	if err := initramfs.Write(&cpio, []initramfs.Entry{
		initramfs.Dir("dev", 0o755), initramfs.Char("dev/console", 0o600, 5, 1), initramfs.File("init", 0o755, b),
	}); err != nil {
		t.Fatal(err)
	}
	return file(t, "initrd", cpio.Bytes())
}
