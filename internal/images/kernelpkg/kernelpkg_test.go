package kernelpkg

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// testModule returns an ELF file with a .modinfo section of these fields.
func testModule(t testing.TB, fields ...string) []byte {
	t.Helper()
	names := "\x00.shstrtab\x00.modinfo\x00"
	info := strings.Join(fields, "\x00") + "\x00"
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: uint64(64 + len(names) + len(info)), Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	}
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: 64, Size: uint64(len(names))},
		{Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: uint64(64 + len(names)), Size: uint64(len(info))},
	}
	var b bytes.Buffer
	for _, v := range []any{h, []byte(names), []byte(info), sections} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func packXZ(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func packZstd(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

const release = "6.12.0-test"

// testFiles is a miniature kernel package. No module needs mmio, which depends on ring; cycle_a and cycle_b
// depend on each other; orphan needs a missing module.
func testFiles(t testing.TB) map[string][]byte {
	t.Helper()
	lib := "lib/modules/" + release + "/"
	return map[string][]byte{
		"boot/vmlinuz-" + release:           []byte("the kernel"),
		"boot/config-" + release:            []byte("# CONFIG_NO is not set\nCONFIG_VMGENID=y\nCONFIG_NAME=\"x\"\n"),
		"boot/System.map-" + release:        []byte("unwanted"),
		lib + "modules.builtin":             []byte("kernel/lib/crc32c.ko\nkernel/fs/built-in.ko\n"),
		lib + "kernel/d/virtio-mmio.ko.xz":  packXZ(t, testModule(t, "depends=virtio_ring,crc32c", "name=virtio_mmio")),
		lib + "kernel/d/virtio_ring.ko.zst": packZstd(t, testModule(t, "depends=virtio", "softdep=pre: crc32c algo soft-one gone post: late")),
		lib + "kernel/d/virtio.ko":          testModule(t, "depends=", "license=GPL"),
		lib + "kernel/d/soft-one.ko":        testModule(t, "depends=virtio"),
		lib + "kernel/d/algo_generic.ko":    testModule(t, "alias=algo"),
		lib + "kernel/d/cycle_a.ko":         testModule(t, "depends=cycle_b"),
		lib + "kernel/d/cycle_b.ko":         testModule(t, "depends=cycle_a"),
		lib + "kernel/d/orphan.ko":          testModule(t, "depends=not-there"),
		lib + "kernel/d/damaged.ko.xz":      []byte("\xfd7zXZ\x00 and no more"),
		lib + "kernel/d/text.ko":            []byte("no module"),
	}
}

func testTar(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type member struct {
	name string
	data []byte
}

func testAr(members ...member) []byte {
	b := []byte("!<arch>\n")
	for _, m := range members {
		b = append(b, fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))...)
		b = append(b, m.data...)
		if len(m.data)%2 == 1 {
			b = append(b, '\n')
		}
	}
	return b
}

func testDeb(t testing.TB) []byte {
	t.Helper()
	control := testTar(t, map[string][]byte{"control": []byte("Package: linux-image-x\nVersion: 6.12.0-1\nDescription: a\n b: c\n")})
	return testAr(member{"debian-binary", []byte("2.0\n")}, member{"control.tar.zst", packZstd(t, control)},
		member{"data.tar.xz", packXZ(t, testTar(t, testFiles(t)))})
}

func openTestDeb(t testing.TB) *Package {
	t.Helper()
	p, err := readDeb(t.Context(), bufio.NewReader(bytes.NewReader(testDeb(t))))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPackageIsRead(t *testing.T) {
	deb := openTestDeb(t)
	if deb.Version != "6.12.0-1" {
		t.Errorf("the package's version is %q", deb.Version)
	}
	for name, p := range map[string]*Package{"deb": deb} {
		if p.Release != release || string(p.Image()) != "the kernel" {
			t.Errorf("%s: release %q, image %q", name, p.Release, p.Image())
		}
		if p.Config("VMGENID") != "y" || p.Config("NAME") != "x" || p.Config("NO") != "" {
			t.Errorf("%s: configuration is misread", name)
		}
		mods, err := p.Modules("virtio_mmio")
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, m := range mods {
			order = append(order, m.File)
			if !bytes.HasPrefix(m.Data, []byte("\x7fELF")) {
				t.Errorf("%s: %s is not unpacked", name, m.File)
			}
		}
		if want := []string{"algo_generic.ko", "virtio.ko", "soft-one.ko", "virtio_ring.ko", "virtio-mmio.ko"}; !slices.Equal(order, want) {
			t.Errorf("%s: order is %q, want %q", name, order, want)
		}
		if _, err := p.Vmlinux(t.Context()); err == nil || !strings.Contains(err.Error(), "not a Linux kernel") {
			t.Errorf("%s: vmlinux of no kernel: %v", name, err)
		}
	}
}

func TestModulesComeOnceAndBuiltinsAreLeftOut(t *testing.T) {
	mods, err := openTestDeb(t).Modules("virtio", "virtio-ring", "virtio_ring", "crc32c", "built_in")
	if err != nil {
		t.Fatal(err)
	}
	if len(mods) != 4 {
		t.Errorf("got %d modules, want virtio, algo_generic, soft-one and virtio_ring", len(mods))
	}
}

func TestModulesErrorsNameTheModule(t *testing.T) {
	p := openTestDeb(t)
	for name, want := range map[string]string{
		"no_such": "no such kernel module: no_such",
		"orphan":  "not_there (needed by orphan)",
		"cycle_a": "cycle_a depends on itself",
		"damaged": "damaged.ko.xz",
		"text":    "text.ko: not a kernel module",
	} {
		if _, err := p.Modules(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if _, err := p.Modules("orphan"); !errors.Is(err, ErrNoModule) {
		t.Errorf("a missing dependency is not ErrNoModule: %v", err)
	}
}

func TestBadPackages(t *testing.T) {
	data := func(files map[string][]byte) []byte {
		return testAr(member{"debian-binary", []byte("2.0\n")}, member{"data.tar", testTar(t, files)})
	}
	two := testFiles(t)
	two["boot/vmlinuz-other"] = nil
	whole := testDeb(t)
	for _, tc := range []struct {
		name string
		deb  []byte
		want string
	}{
		{"nothing", nil, "not a Debian package"},
		{"text", []byte("hello, this is text"), "not a Debian package"},
		{"no data", testAr(member{"debian-binary", []byte("2.0\n")}), "no data.tar"},
		{"a meta package", data(map[string][]byte{"usr/share/doc/x": nil}), "no boot/vmlinuz-*"},
		{"two kernels", data(two), "2 kernels"},
		{"no modules", data(map[string][]byte{"boot/vmlinuz-1": nil}), "no modules in lib/modules/1"},
		{"an unknown compression", testAr(member{"data.tar.lzma", nil}), `unknown compression ".lzma"`},
		{"cut short", whole[:len(whole)/2], "data.tar.xz"},
		{"a damaged header", append([]byte("!<arch>\n"), bytes.Repeat([]byte("x"), 60)...), "damaged archive header"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := readDeb(t.Context(), bufio.NewReader(bytes.NewReader(tc.deb))); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTree(t *testing.T) {
	p := openTestDeb(t)
	files, err := p.Tree("virtio-mmio", "crc32c")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, strings.TrimPrefix(f.Path, "lib/modules/"+release+"/"))
		if strings.HasSuffix(f.Path, ".ko") && !bytes.HasPrefix(f.Data, []byte("\x7fELF")) {
			t.Errorf("%s is still compressed", f.Path)
		}
	}
	want := []string{"kernel/d/algo_generic.ko", "kernel/d/soft-one.ko", "kernel/d/virtio-mmio.ko", "kernel/d/virtio.ko",
		"kernel/d/virtio_ring.ko", "modules.builtin"}
	if !slices.Equal(paths, want) {
		t.Errorf("the files are %q, want %q", paths, want)
	}
	var missing *MissingError
	if _, err := p.Tree("virtio", "no-such"); !errors.As(err, &missing) || missing.Name != "no-such" || !errors.Is(err, ErrNoModule) {
		t.Errorf("an unknown module: %v", err)
	}
	if _, err := p.Tree("docker"); err != nil {
		t.Errorf("a kernel without the modules of a set: %v", err)
	}
	if _, err := p.Tree("orphan"); err == nil {
		t.Error("a module without its dependency is accepted")
	}
	if _, err := p.Tree("damaged"); err == nil {
		t.Error("a damaged module is accepted")
	}
	if !slices.Equal(Sets(), []string{"docker", "all"}) {
		t.Errorf("the sets are %q", Sets())
	}
}
