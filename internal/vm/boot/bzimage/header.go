package bzimage

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Offsets in the file, Linux x86 boot protocol ("the real-mode kernel header").
const (
	offSetupSects    = 0x1f1 // number of 512-byte setup sectors behind the boot sector; 0 means 4
	offBootFlag      = 0x1fe // 0xaa55
	offMagic         = 0x202 // "HdrS"
	offVersion       = 0x206 // protocol version, 2.08 (0x0208) brought the payload fields
	offPayload       = 0x248 // of the payload, from the start of the protected-mode code
	offPayloadLength = 0x24c
	headerEnd        = 0x250

	minProtocol = 0x0208
	sector      = 512
)

var elfMagic = []byte("\x7fELF")

// payload returns the compressed kernel inside a bzImage.
func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || binary.LittleEndian.Uint16(image[offBootFlag:]) != 0xaa55 ||
		!bytes.Equal(image[offMagic:offMagic+4], []byte("HdrS")) {
		return nil, fmt.Errorf("it is %s", describe(image))
	}
	if v := binary.LittleEndian.Uint16(image[offVersion:]); v < minProtocol {
		return nil, fmt.Errorf("it speaks boot protocol %d.%02d, older than 2.08 (Linux 2.6.26)", v>>8, v&0xff)
	}
	sects := uint64(image[offSetupSects])
	if sects == 0 {
		sects = 4
	}
	start := (sects+1)*sector + uint64(binary.LittleEndian.Uint32(image[offPayload:]))
	length := uint64(binary.LittleEndian.Uint32(image[offPayloadLength:]))
	if length == 0 {
		return nil, fmt.Errorf("its header names no payload")
	}
	if end := start + length; end > uint64(len(image)) {
		return nil, fmt.Errorf("it is cut short: the payload ends at byte %d, the file at %d", end, len(image))
	}
	return image[start : start+length], nil
}

// kinds are files passed as a kernel by mistake, by their first bytes.
var kinds = []struct {
	offset int
	magic  string
	name   string
}{
	{0, "\x1f\x8b", "a gzip file"},
	{0, "\xfd7zXZ\x00", "an xz file"},
	{0, "\x28\xb5\x2f\xfd", "a zstd file"},
	{0, "\x02\x21\x4c\x18", "an lz4 file"},
	{0, "BZh", "a bzip2 file"},
	{0, "PK\x03\x04", "a zip archive"},
	{0, "!<arch>\n", "an ar archive (a Debian package?)"},
	{0, "070701", "a cpio archive (an initrd?)"},
	{0, "#!", "a script"},
	{0, "QFI\xfb", "a qcow2 disk image"},
	{0, "<", "an HTML or XML document"},
	{56, "ARM\x64", "an arm64 kernel image"},
	{257, "ustar", "a tar archive"},
	{1024, "\xe2\xe1\xf5\xe0", "an erofs file system"},
	{1080, "\x53\xef", "an ext2, ext3 or ext4 file system"},
	{510, "\x55\xaa", "a boot sector without Linux's setup header (a disk image?)"},
}

// describe names the kind of a file other than a kernel.
func describe(b []byte) string {
	if len(b) == 0 {
		return "an empty file"
	}
	for _, k := range kinds {
		if end := k.offset + len(k.magic); len(b) >= end && string(b[k.offset:end]) == k.magic {
			return k.name
		}
	}
	return fmt.Sprintf("%d bytes beginning with % x, with no setup header", len(b), b[:min(len(b), 8)])
}
