package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/store/layer"
)

// Sizes of the writable disk in MiB.
const (
	defaultDiskMiB = 4 << 10
	minDiskMiB     = 64
	maxDiskMiB     = 1 << 20
	noDisk         = "none"
)

var diskRE = regexp.MustCompile(`^([0-9]{1,7})(MiB|GiB|TiB)$`)

// parseDisk parses the recipe's size of the disk. "none" is 0.
func parseDisk(s string) (mib int, err error) {
	switch s {
	case "":
		return defaultDiskMiB, nil
	case noDisk:
		return 0, nil
	}
	unit := map[string]int{"MiB": 1, "GiB": 1 << 10, "TiB": 1 << 20}
	if m := diskRE.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		if mib := n * unit[m[2]]; err == nil && mib >= minDiskMiB && mib <= maxDiskMiB {
			return mib, nil
		}
	}
	return 0, fmt.Errorf("disk is %q, want a size from 64MiB to 1TiB, like 4GiB, or %s", s, noDisk)
}

func (r *Recipe) checkDisk() (err error) {
	if r.diskMiB, err = parseDisk(r.Disk.Value); err != nil {
		return at(r.Disk.Line, "%v", err)
	}
	return nil
}

// upperFeatures are the options of the writable file system. It has no journal: a VM's disk and memory are
// captured at one instant, so it is never mounted after a crash, and the journal's thread would wake every idle
// child and write to the disk. For the same reason no lazy initialization is left to the guest (the disk is all
// zeros). Metadata has no checksums, which would cause more of it to change.
var upperFeatures = []string{
	"-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-L", "forkd-upper",
	"-e", "remount-ro", // if the guest mounts it in another way than the agent does
	"-O", "none,extent,filetype,sparse_super2,flex_bg,large_file,huge_file,dir_index,ext_attr,extra_isize,dir_nlink," +
		"uninit_bg,64bit",
}

const upperOptions = "lazy_itable_init=1,assume_storage_prezeroed=1,nodiscard,num_backup_sb=0,hash_seed="

// upperPart builds the empty file system of the disk for the guest's writes.
func (b *build) upperPart(ctx context.Context) (entry, error) {
	k, err := key([]any{builderVersion, upperFeatures, upperOptions, b.recipe.diskMiB, layer.Version})
	if err != nil {
		return entry{}, err
	}
	_, hit := b.cache.get(kindUpper, k)
	if !hit {
		b.progress.begin(StepUpper, fmt.Sprintf("%d MiB", b.recipe.diskMiB))
	}
	e, err := b.cached(ctx, kindUpper, k, func(dir string) (any, error) {
		return nil, makeUpper(ctx, b.run, filepath.Join(dir, UpperFile), int64(b.recipe.diskMiB)<<20, uuid(k))
	})
	if err != nil {
		return entry{}, fmt.Errorf("make writable disk: %w", err)
	}
	b.progress.done(StepUpper, hit, "")
	return e, nil
}

// maxUpperRuns limits the runs of the empty disk: each becomes an extent of every parent's disk.
const maxUpperRuns = 1024

// makeUpper writes an empty ext4 of size bytes as a base layer. The same arguments give the same bytes.
func makeUpper(ctx context.Context, run debtool.Runner, path string, size int64, id string) (err error) {
	plain := path + ".plain"
	f, err := os.OpenFile(plain, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(plain)) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	args := append([]string{"mke2fs"}, upperFeatures...)
	_, err = run(ctx, debtool.Command{
		Args:    append(args, "-E", upperOptions+id, "-U", id, plain),
		Package: "e2fsprogs",
		// Ignore the host's defaults and the time.
		Env: []string{"MKE2FS_CONFIG=" + os.DevNull, "E2FSPROGS_FAKE_TIME=1", "SOURCE_DATE_EPOCH=1"},
	})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(storeUpper(ctx, out, f, size, id), out.Close())
}

// storeUpper writes a layer with the content of the sparse file plain. Its ID is the file system's UUID, so that
// rebuilding gives the same ID.
func storeUpper(ctx context.Context, out, plain *os.File, size int64, id string) error {
	name, err := layer.ParseID(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return err
	}
	w, err := layer.NewWriter(out, layer.Spec{ID: name, Kind: layer.Disk, Size: size}, layer.Options{})
	if err != nil {
		return err
	}
	data, err := layer.DataOf(plain, size)
	if err != nil {
		return err
	}
	if err := w.Diff(ctx, data, nil, maxUpperRuns); err != nil {
		return err
	}
	_, err = w.Finish()
	return err
}
