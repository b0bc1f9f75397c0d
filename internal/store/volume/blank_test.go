package volume

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/store/overlay"
)

var update = flag.Bool("update", false, "make the blank file systems again")

// An e2fsprogs of another version may lay out the blocks otherwise, so the test asks it to read the file systems, and
// makes them with -update only.
func TestBlankFileSystems(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	for _, size := range blankSizes {
		t.Run(fmt.Sprintf("%d MiB", size>>20), func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			if *update {
				makeBlank(t, disk, size)
				if err := os.WriteFile(blankName(size), packed(t, disk), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			f, err := os.Create(disk)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b, err := blanks.ReadFile(blankName(size))
			if err := errors.Join(err, f.Truncate(size), unpack(b, f)); err != nil {
				t.Fatal(err)
			}
			if got := e2fs(t, "debugfs", "-R", "stat <2>", disk); !strings.Contains(got, "01777") {
				t.Errorf("the root is %s", got)
			}
			if got, want := e2fs(t, "dumpe2fs", "-h", disk), fmt.Sprintf("%d\n", size/4096); !strings.Contains(got, want) {
				t.Errorf("want %s blocks: %s", want, got)
			}
			e2fs(t, "debugfs", "-w", "-R", "mkdir lost+found", disk) // e2fsck wants one
			e2fs(t, "e2fsck", "-fn", disk)
		})
	}
}

// makeBlank makes a file system in a sparse file. Blocks of a new volume are zero, so the inode tables need no writing.
func makeBlank(t *testing.T, disk string, size int64) {
	t.Helper()
	t.Setenv("E2FSPROGS_FAKE_TIME", "1")
	const id = "6f726b64-0000-4000-8000-766f6c756d65"
	journal := "64"
	if size == MinBytes {
		journal = "16"
	}
	e2fs(t, "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", "forkd-volume", "-U", id,
		"-O", "^metadata_csum,uninit_bg,64bit", "-J", "size="+journal, "-E", "lazy_itable_init=1,lazy_journal_init=1,"+
			"assume_storage_prezeroed=1,nodiscard,hash_seed="+id+fmt.Sprintf(",resize=%d", int64(MaxBytes)/4096),
		disk, fmt.Sprintf("%dM", size>>20))
	e2fs(t, "debugfs", "-w", "-R", "rmdir lost+found", disk) // a program may want an empty directory
	e2fs(t, "debugfs", "-w", "-R", "set_inode_field <2> mode 041777", disk)
}

func e2fs(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return string(out)
}

// packed returns the blocks of a file that are not zero.
func packed(t *testing.T, disk string) []byte {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	zero, block := make([]byte, overlay.BlockSize), make([]byte, overlay.BlockSize)
	for i := uint32(0); ; i++ {
		if _, err := io.ReadFull(f, block); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(block, zero) {
			continue
		}
		if err := errors.Join(binary.Write(z, binary.LittleEndian, i), func() error { _, err := z.Write(block); return err }()); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
