package initramfs

import (
	"fmt"
	"strings"
)

// ModuleDir is the directory of a guest's kernel modules in its initramfs. OrderFile is a file in it, with one
// file name per line, in load order.
const (
	ModuleDir = "lib/modules/forkd"
	OrderFile = ModuleDir + "/order"
)

// Module is an uncompressed kernel module. File is its name without directories: "erofs.ko".
type Module struct {
	File string
	Data []byte
}

// Guest returns the layout of a guest's initramfs: init as /init, modules in load order, the console node that
// the kernel opens for init, and empty directories for mounts.
func Guest(init []byte, modules []Module) ([]Entry, error) {
	entries := []Entry{
		File("init", 0o755, init),
		Dir("dev", 0o755),
		Char("dev/console", 0o600, 5, 1), // otherwise init has no stdout until devtmpfs is mounted
		Char("dev/null", 0o666, 1, 3),
		Dir("proc", 0o555),
		Dir("sys", 0o555),
		Dir("run", 0o755),
		Dir("tmp", 0o1777),
		Dir("root", 0o700),
		Dir("mnt", 0o755),
		Dir("newroot", 0o755),
	}
	mods, err := Modules(modules)
	if err != nil {
		return nil, err
	}
	return append(entries, mods...), nil
}

// Modules returns only the module directory, for other layouts than Guest's.
func Modules(modules []Module) ([]Entry, error) {
	var order strings.Builder
	entries := make([]Entry, 0, len(modules)+1)
	for _, m := range modules {
		if m.File == "" || strings.ContainsAny(m.File, "/\n\x00") {
			return nil, fmt.Errorf("kernel module has the file name %q", m.File)
		}
		order.WriteString(m.File + "\n")
		entries = append(entries, File(ModuleDir+"/"+m.File, 0o644, m.Data))
	}
	return append(entries, File(OrderFile, 0o644, []byte(order.String()))), nil
}
