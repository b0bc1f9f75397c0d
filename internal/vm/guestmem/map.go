package guestmem

// ReadAt copies len(p) bytes from gpa.
func (m *Map) ReadAt(p []byte, gpa GPA) error {
	b, err := m.Slice(gpa, len(p))
	if err != nil {
		return err
	}
	copy(p, b)
	return nil
}

// WriteAt copies p to gpa.
func (m *Map) WriteAt(p []byte, gpa GPA) error {
	b, err := m.Slice(gpa, len(p))
	if err != nil {
		return err
	}
	copy(b, p)
	return nil
}
