package bzimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

// testELF returns a minimal kernel: an ELF header, one segment, its bytes.
func testELF(t testing.TB) []byte {
	t.Helper()
	content := bytes.Repeat([]byte("forkd test kernel "), 100)
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Entry: 0x1000000, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120, Vaddr: 0x1000000, Paddr: 0x1000000, Filesz: uint64(len(content)), Memsz: uint64(len(content))}
	var b bytes.Buffer
	for _, v := range []any{h, p, content} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// wrap puts a payload into a bzImage with two setup sectors.
func wrap(payload []byte) []byte {
	image := make([]byte, 3*sector+16)
	image[offSetupSects] = 2
	binary.LittleEndian.PutUint16(image[offBootFlag:], 0xaa55)
	copy(image[offMagic:], "HdrS")
	binary.LittleEndian.PutUint16(image[offVersion:], 0x020f)
	binary.LittleEndian.PutUint32(image[offPayload:], 16)
	binary.LittleEndian.PutUint32(image[offPayloadLength:], uint32(len(payload)))
	return append(append(image, payload...), "what follows the payload"...)
}

// pack compresses like the kernel's build, with the size appended except for gzip.
func pack(t testing.TB, format string, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch format {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "xz":
		w, err = xz.WriterConfig{CheckSum: xz.CRC32}.NewWriter(&b)
	case "lz4":
		z := lz4.NewWriter(&b)
		err = z.Apply(lz4.LegacyOption(true))
		w = z
	case "none":
		return plain
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if format == "gzip" {
		return b.Bytes()
	}
	return binary.LittleEndian.AppendUint32(b.Bytes(), uint32(len(plain)))
}

func TestExtractEachFormat(t *testing.T) {
	kernel := testELF(t)
	relocated := append(bytes.Clone(kernel), "relocation table"...)
	for _, format := range []string{"gzip", "zstd", "xz", "lz4", "none"} {
		t.Run(format, func(t *testing.T) {
			got, err := Extract(t.Context(), "vmlinuz", wrap(pack(t, format, relocated)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, kernel) {
				t.Errorf("got %d bytes, want the ELF's %d without what follows", len(got), len(kernel))
			}
		})
	}
}

func TestExtractPassesELFThrough(t *testing.T) {
	got, err := Extract(t.Context(), "vmlinux", testELF(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, testELF(t)) {
		t.Error("the ELF came back changed")
	}
}

func TestExtractSaysWhatItIsInstead(t *testing.T) {
	change := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	whole := wrap(pack(t, "zstd", testELF(t)))
	lying := pack(t, "zstd", testELF(t))
	binary.LittleEndian.PutUint32(lying[len(lying)-4:], 7)
	for _, tc := range []struct {
		name string
		file []byte
		want string
	}{
		{"nothing", nil, "an empty file"},
		{"a script", []byte("#!/bin/sh\n"), "a script"},
		{"a package", []byte("!<arch>\ndebian-binary"), "a Debian package?"},
		{"an initrd", []byte("070701000000"), "an initrd?"},
		{"text", []byte("hello, world"), "12 bytes beginning with 68 65"},
		{"an arm64 program", change(testELF(t), 18, byte(elf.EM_AARCH64)), "ELF file for EM_AARCH64"},
		{"a shared library", change(testELF(t), 16, byte(elf.ET_DYN)), "type ET_DYN"},
		{"a 32-bit ELF", change(testELF(t), 4, byte(elf.ELFCLASS32)), "not a 64-bit"},
		{"an ELF cut short", testELF(t)[:200], "cut short: segment 0"},
		{"an ELF header only", testELF(t)[:70], "cut short"},
		{"a bzImage cut short", whole[:len(whole)-100], "cut short: the payload ends at byte"},
		{"an old protocol", change(bytes.Clone(whole), offVersion, 0x05, 0x02), "boot protocol 2.05"},
		{"no ELF inside", wrap(pack(t, "gzip", []byte("#!/bin/sh"))), "unpacks to a script"},
		{"an unknown payload", wrap([]byte("????????")), "unknown compression"},
		{"an lzma payload", wrap([]byte("\x5d\x00\x00\x80\x00\x00")), "lzma, which is not supported"},
		{"more than it says", wrap(lying), "more than 7 bytes come out"},
		{"a claim beyond the cap", wrap([]byte("\x28\xb5\x2f\xfd....\xff\xff\xff\xff")), "claims to unpack to 4095 MiB"},
		{"a damaged payload", wrap(change(pack(t, "zstd", testELF(t)), 20, 0xff, 0xff, 0xff)), "unpack zstd payload"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Extract(t.Context(), "the-file", tc.file)
			if !errors.Is(err, ErrNotKernel) {
				t.Fatalf("got error %v, want ErrNotKernel", err)
			}
			if !strings.HasPrefix(err.Error(), "the-file is not a Linux kernel") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, want it to contain %q", err, tc.want)
			}
		})
	}
}
