package appliance

import (
	"errors"
	"testing"
)

func TestVersionRules(t *testing.T) {
	tests := []struct {
		name         string
		qemu, kernel string
		accel        string
		cpus, want   int
		unsupported  bool
	}{
		{"new QEMU and new kernel keep their CPUs", "QEMU emulator version 10.0.2 (Debian 1:10.0.2)", "6.12.95+deb12-cloud-amd64", accelTCG, 2, 2, false},
		{"new QEMU keeps its CPUs with an old kernel", "QEMU emulator version 10.1.0", "6.1.0-50-cloud-amd64", accelTCG, 4, 4, false},
		{"old QEMU with an old kernel loses timer interrupts on two CPUs", "QEMU emulator version 7.2.19", "6.1.0-50-cloud-amd64", accelTCG, 2, 1, false},
		{"old QEMU with a new kernel panics", "QEMU emulator version 7.2.19", "6.12.95", accelTCG, 1, 0, true},
		{"what lies between is treated as old", "QEMU emulator version 9.2.0", "6.12.95", accelTCG, 1, 0, true},
		{"hardware does not use the emulation", "QEMU emulator version 7.2.19", "6.12.95", accelKVM, 4, 4, false},
		{"older than anything measured", "QEMU emulator version 5.2.0", "6.1.0", accelKVM, 1, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			qemu, err := parseVersion(tt.qemu)
			if err != nil {
				t.Fatal(err)
			}
			kernel, err := parseVersion(tt.kernel)
			if err != nil {
				t.Fatal(err)
			}
			got, err := checkVersions(qemu, kernel, tt.accel, tt.cpus)
			if errors.Is(err, ErrUnsupported) != tt.unsupported {
				t.Fatalf("error is %v", err)
			}
			if got != tt.want {
				t.Errorf("%d CPUs, want %d", got, tt.want)
			}
		})
	}
}

func TestParseVersionRefusesOtherText(t *testing.T) {
	for _, text := range []string{"", "QEMU", "version ten"} {
		if v, err := parseVersion(text); err == nil {
			t.Errorf("%q gives %v", text, v)
		}
	}
}
