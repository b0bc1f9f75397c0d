package snapshot

import (
	"os"
	"testing"
)

func TestADroppedFileIsNoPartOfTheSnapshot(t *testing.T) {
	s := open(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	m := manifest(base(t, d, nil))
	state, disk, set := file(t, d, StateFile), file(t, d, DiskFile(0)), file(t, d, WorkingSetFile)
	if d.Opened(StateFile) != state || d.Opened(DiskFile(0)) != disk || d.Opened("other") != nil {
		t.Error("the draft's files are not told by name")
	}
	d.Drop(set)
	if d.Opened(WorkingSetFile) != nil {
		t.Error("a dropped file is still there")
	}
	if err := d.Commit(m); err != nil {
		t.Fatal(err)
	}
	files, err := s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if files.File(WorkingSetFile) != nil {
		t.Error("a dropped file is listed")
	}
	if _, err := os.Stat(s.Dir("a") + "/" + WorkingSetFile); err == nil {
		t.Error("a dropped file is on disk")
	}
}
