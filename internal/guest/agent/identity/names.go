package identity

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// BootIDFile holds the id that is bind-mounted over the kernel's own. It is written in place, so
// the mount from the parent stays.
const BootIDFile = "/run/forkd/boot_id"

func (a *Applier) setClock(wall time.Time) (time.Duration, bool, error) {
	if wall.IsZero() {
		return 0, false, nil
	}
	step := wall.Sub(time.Now().Round(0)) // Round removes the monotonic reading, to compare wall clocks
	if err := a.System.SetClock(wall); err != nil {
		return 0, false, fmt.Errorf("set clock: %w", err)
	}
	return step, true, nil
}

func (a *Applier) setHostname(name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	if err := a.System.SetHostname(name); err != nil {
		return false, fmt.Errorf("set hostname: %w", err)
	}
	if err := rewrite(a.path("/etc/hostname"), []byte(name+"\n")); err != nil {
		return false, err
	}
	return true, a.editHosts(name)
}

// editHosts replaces the line of 127.0.1.1, which holds the guest's own name.
func (a *Applier) editHosts(name string) error {
	file := a.path("/etc/hosts")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read hosts: %w", err)
	}
	return rewrite(file, hostsWith(old, name))
}

func hostsWith(old []byte, name string) []byte {
	var out bytes.Buffer
	local := false
	for line := range bytes.Lines(old) {
		f := bytes.Fields(line)
		if len(f) > 0 && string(f[0]) == "127.0.1.1" {
			continue
		}
		local = local || (len(f) > 0 && string(f[0]) == "127.0.0.1")
		out.Write(bytes.TrimRight(line, "\n"))
		out.WriteByte('\n')
	}
	if !local {
		out.WriteString("127.0.0.1\tlocalhost\n")
	}
	out.WriteString("127.0.1.1\t" + name + "\n")
	return out.Bytes()
}

func (a *Applier) setMachineID(id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	if err := rewrite(a.path("/etc/machine-id"), []byte(id+"\n")); err != nil {
		return false, err
	}
	return true, a.setDBusID(id)
}

// setDBusID updates D-Bus's copy of the machine id. A link to /etc/machine-id needs no change.
func (a *Applier) setDBusID(id string) error {
	file := a.path("/var/lib/dbus/machine-id")
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	return rewrite(file, []byte(id+"\n"))
}

// setBootID keeps the boot id if same is set and one exists. Otherwise it makes a new one.
func (a *Applier) setBootID(same bool) (id string, renewed bool, err error) {
	if same {
		b, err := os.ReadFile(a.path(BootIDFile))
		if id := strings.TrimSpace(string(b)); err == nil && id != "" {
			return id, false, nil
		}
	}
	id, err = a.newBootID()
	return id, err == nil, err
}

// newBootID gives the clone its own boot id. Programs use it to name this run of the system.
func (a *Applier) newBootID() (string, error) {
	id := uuid()
	if err := rewrite(a.path(BootIDFile), []byte(id+"\n")); err != nil {
		return "", err
	}
	if err := a.System.BindBootID(a.path(BootIDFile)); err != nil {
		return "", fmt.Errorf("bind boot id: %w", err)
	}
	return id, nil
}

// Prepare does in the parent the work that every clone would otherwise repeat. The files exist and
// the boot id is bound, so a clone only changes contents.
func (a *Applier) Prepare() error {
	if _, err := a.newBootID(); err != nil {
		return err
	}
	for _, name := range []string{"/etc/hostname", "/etc/hosts", "/etc/machine-id"} {
		b, err := os.ReadFile(a.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		// Write in any case, to bring the file into the writable layer.
		if err := write(a.path(name), b); err != nil {
			return err
		}
	}
	return nil
}

// rewrite replaces a small file's contents in place, if they differ.
func rewrite(name string, b []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return write(name, b)
}

func write(name string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	// Truncate after the write and never to zero: when a file was emptied and written again, ext4
	// sends it to the disk on close (auto_da_alloc), and each clone would wait for that.
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// uuid returns a random (version 4) UUID, like the kernel's boot id.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// validHostname accepts the characters of hostnames. They cannot start another line in /etc/hosts.
func validHostname(s string) bool {
	if len(s) > 64 || strings.HasPrefix(s, "-") || strings.HasPrefix(s, ".") {
		return false
	}
	for _, r := range s {
		if !(r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return false
		}
	}
	return true
}

func validMachineID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, r := range s {
		if !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f') {
			return false
		}
	}
	return true
}
