package kernelpkg

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
)

// maxModule is the largest module, unpacked, in bytes. Debian's largest (amdgpu) has 30 MiB.
const maxModule = 64 << 20

var errNotModule = errors.New("not a kernel module (64-bit little-endian ELF with a .modinfo section)")

// modinfo lists a module's dependencies.
type modinfo struct {
	// depends are the modules whose symbols it uses. It does not load without them.
	depends []string
	// softPre are modules that should be loaded before it, if they exist.
	softPre []string
}

// parseModinfo parses the .modinfo section of a module: strings "key=value", each terminated by a zero byte.
func parseModinfo(module []byte) (modinfo, error) {
	section, err := findSection(module, ".modinfo")
	if err != nil {
		return modinfo{}, err
	}
	var info modinfo
	for field := range bytes.SplitSeq(section, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					info.depends = append(info.depends, canonical(name))
				}
			}
		case "softdep": // "pre: a b post: c"
			pre, _, _ := strings.Cut(value, "post:")
			if _, names, ok := strings.Cut(pre, "pre:"); ok {
				for name := range strings.FieldsSeq(names) {
					info.softPre = append(info.softPre, canonical(name))
				}
			}
		}
	}
	return info, nil
}

// findSection returns a section's content by its name. It checks every offset, because the file is untrusted.
func findSection(b []byte, name string) ([]byte, error) {
	var h elf.Header64
	if len(b) < binary.Size(h) || string(b[:4]) != elf.ELFMAG ||
		elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errNotModule
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return nil, errNotModule
	}
	names, err := readSection(b, h, uint64(h.Shstrndx))
	if err != nil {
		return nil, err
	}
	for i := range uint64(h.Shnum) {
		s, err := sectionHeader(b, h, i)
		if err != nil {
			return nil, err
		}
		if uint64(s.Name) < uint64(len(names)) && bytes.HasPrefix(names[s.Name:], append([]byte(name), 0)) {
			return readSection(b, h, i)
		}
	}
	return nil, errNotModule
}

func sectionHeader(b []byte, h elf.Header64, i uint64) (elf.Section64, error) {
	var s elf.Section64
	size := uint64(binary.Size(s))
	at := h.Shoff + i*uint64(h.Shentsize)
	if i >= uint64(h.Shnum) || uint64(h.Shentsize) < size || h.Shoff > uint64(len(b)) || at > uint64(len(b)) ||
		uint64(len(b))-at < size {
		return s, errNotModule
	}
	_, err := binary.Decode(b[at:], binary.LittleEndian, &s)
	return s, err
}

func readSection(b []byte, h elf.Header64, i uint64) ([]byte, error) {
	s, err := sectionHeader(b, h, i)
	if err != nil {
		return nil, err
	}
	if elf.SectionType(s.Type) == elf.SHT_NOBITS || s.Off > uint64(len(b)) || s.Size > uint64(len(b))-s.Off {
		return nil, errNotModule
	}
	return b[s.Off : s.Off+s.Size], nil
}
