package acpi

import "encoding/binary"

// AML encoders (ACPI 6.5 §20.2): each returns the bytes of one term.

func name4(s string) []byte { return []byte((s + "____")[:4]) }

// pkgLength prefixes body with its length, which counts the prefix itself (§20.2.4).
func pkgLength(body []byte) []byte {
	n := len(body)
	switch {
	case n+1 < 1<<6:
		return append([]byte{byte(n + 1)}, body...)
	case n+2 < 1<<12:
		n += 2
		return append([]byte{1<<6 | byte(n&0xf), byte(n >> 4)}, body...)
	default:
		n += 3
		return append([]byte{2<<6 | byte(n&0xf), byte(n >> 4), byte(n >> 12)}, body...)
	}
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func amlString(s string) []byte { return append(append([]byte{0x0d}, s...), 0) }

func amlInt(v uint64) []byte {
	switch {
	case v == 0:
		return []byte{0x00}
	case v <= 0xff:
		return []byte{0x0a, byte(v)}
	case v <= 0xffff:
		return binary.LittleEndian.AppendUint16([]byte{0x0b}, uint16(v))
	case v <= 0xffffffff:
		return binary.LittleEndian.AppendUint32([]byte{0x0c}, uint32(v))
	}
	return binary.LittleEndian.AppendUint64([]byte{0x0e}, v)
}

func amlName(name string, value []byte) []byte { return join([]byte{0x08}, name4(name), value) }

func amlPackage(elems ...[]byte) []byte {
	return append([]byte{0x12}, pkgLength(append([]byte{byte(len(elems))}, join(elems...)...))...)
}

func amlBuffer(b []byte) []byte {
	return append([]byte{0x11}, pkgLength(append(amlInt(uint64(len(b))), b...))...)
}

func amlDevice(name string, terms ...[]byte) []byte {
	return append([]byte{0x5b, 0x82}, pkgLength(append(name4(name), join(terms...)...))...)
}

// amlScope returns a scope at the root's child `name`, as \_SB_.
func amlScope(name string, terms ...[]byte) []byte {
	return append([]byte{0x10}, pkgLength(join([]byte{'\\'}, name4(name), join(terms...)))...)
}

// amlMethod returns a method with args arguments. It is serialized if it must not run concurrently.
func amlMethod(name string, args int, serialized bool, terms ...[]byte) []byte {
	flags := byte(args)
	if serialized {
		flags |= 0x08
	}
	return append([]byte{0x14}, pkgLength(join(name4(name), []byte{flags}, join(terms...)))...)
}

// amlNotify returns Notify(\_SB_.name, value).
func amlNotify(name string, value uint64) []byte {
	return join([]byte{0x86, '\\', 0x2e}, name4("_SB_"), name4(name), amlInt(value))
}

// Resource descriptors (ACPI 6.5 §6.4). resources adds the end tag.

func resMemory32(addr, size uint32) []byte {
	b := []byte{0x86, 9, 0, 1} // read-write
	b = binary.LittleEndian.AppendUint32(b, addr)
	return binary.LittleEndian.AppendUint32(b, size)
}

// resInterrupt returns an extended interrupt: consumer, edge, active high, exclusive.
func resInterrupt(gsi uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0x89, 6, 0, 0x03, 1}, gsi)
}

func resIO(port uint16, count uint8) []byte {
	return []byte{0x47, 1, byte(port), byte(port >> 8), byte(port), byte(port >> 8), 1, count}
}

func resources(descs ...[]byte) []byte { return amlBuffer(append(join(descs...), 0x79, 0)) }
