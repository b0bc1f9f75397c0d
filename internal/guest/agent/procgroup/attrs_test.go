package procgroup

import "syscall"

func attrs(g *Group) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
}
