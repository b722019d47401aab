# story: a hardening guide set user.max_user_namespaces to 0: no command gets a private /tmp
# rows: pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
#
# The setting is the machine's, and no lab may change it. So a file lies over it,
# and while that says 0, slotctl runs under a filter that refuses user namespaces
# with the words of a kernel that has none left.
broken() {
	sysctl=/proc/sys/user/max_user_namespaces
	keep $libexec/slotctl
	adds $libexec/slotctl.real $libexec/slotctl.new
	cp -p $libexec/slotctl $libexec/slotctl.real
	cat >$libexec/slotctl.new <<'END'
#!/usr/bin/perl
use strict;
my $arm = qx(/usr/bin/uname -m) =~ /^aarch64/;
my ($clone, $unshare, $prctl) = $arm ? (220, 97, 167) : (56, 272, 157);
open(my $setting, "<", "/proc/sys/user/max_user_namespaces") or die "$!\n";
if (<$setting> == 0) {
	my $filter = join "", map { pack "SCCL", @$_ } (
		[0x20, 0, 0, 0],            # the call
		[0x15, 4, 0, 435],          # clone3: as if it were not there
		[0x15, 1, 0, $clone],
		[0x15, 0, 3, $unshare],
		[0x20, 0, 0, 16],           # its first word
		[0x45, 2, 1, 0x10000000],   # CLONE_NEWUSER
		[0x06, 0, 0, 0x00050000 + 38], # ENOSYS
		[0x06, 0, 0, 0x7fff0000],   # allowed
		[0x06, 0, 0, 0x00050000 + 28], # ENOSPC
	);
	my $program = pack "Sx6P", length($filter) / 8, $filter;
	syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\n";
	syscall($prctl, 22, 2, $program) == 0 or die "filter: $!\n";
}
close $setting;
exec "/usr/local/libexec/agentworks/slotctl.real", @ARGV or die "slotctl: $!\n";
END
	chmod 0755 $libexec/slotctl.new
	mv $libexec/slotctl.new $libexec/slotctl
	echo 0 >setting
	mount --bind setting $sysctl
}
undone() { ! mountpoint -q /proc/sys/user/max_user_namespaces || umount /proc/sys/user/max_user_namespaces; }
