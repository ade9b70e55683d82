import ctypes, errno, fcntl, os, platform, socket
assert platform.machine() == 'x86_64', 'the numbers of the calls are those of x86_64'
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(4096)
NEW = {'user': 0x10000000, 'mount': 0x20000, 'pid': 0x20000000, 'net': 0x40000000, 'ipc': 0x8000000}
calls = {
    'unshare': (272, NEW['user']), 'unshare-net': (272, NEW['net']),
    'clone': (56, NEW['user'] | 17, 0, 0, 0, 0), 'clone3': (435, buffer, 88),
    'setns': (308, 0, 0), 'mount': (165, b'none', b'/tmp', b'tmpfs', 0, 0),
    'umount': (166, b'/tmp', 2), 'pivot_root': (155, b'/tmp', b'/tmp'), 'chroot': (161, b'/tmp'),
    'open_tree': (428, -100, b'/tmp', 1), 'move_mount': (429, -100, b'/tmp', -100, b'/tmp', 0),
    'fsopen': (430, b'tmpfs', 0), 'mount_setattr': (442, -100, b'/tmp', 0, buffer, 32),
    'ptrace': (101, 0, 0, 0, 0), 'ptrace-attach': (101, 16, 1, 0, 0),
    'process_vm_readv': (310, os.getpid(), buffer, 1, buffer, 1, 0),
    'pidfd_getfd': (438, 0, 0, 0), 'kcmp': (312, os.getpid(), os.getpid(), 0, 0, 0),
    'bpf': (321, 0, buffer, 72), 'perf_event_open': (298, buffer, 0, -1, -1, 0),
    'keyctl': (250, 0, -3, 1), 'add_key': (248, b'user', b'x', b'x', 1, -2),
    'request_key': (249, b'user', b'x', 0, -2), 'userfaultfd': (323, 1),
    'io_uring_setup': (425, 1, buffer), 'io_uring_enter': (426, 0, 0, 0, 0, 0),
    'fanotify_init': (300, 0x200, 0), 'open_by_handle_at': (304, -100, buffer, 0),
    'name_to_handle_at': (303, -100, b'/', buffer, buffer, 0),
    'init_module': (175, buffer, 0, b''), 'kexec_load': (246, 0, 0, 0, 0),
    'reboot': (169, 0, 0, 0, 0), 'swapon': (167, b'/tmp', 0), 'syslog': (103, 3, buffer, 10),
    'settimeofday': (164, buffer, 0), 'acct': (163, b'/tmp/x'), 'quotactl': (179, 0, 0, 0, 0),
    'netlink': (41, 16, 3, 0), 'packet': (41, 17, 3, 0), 'raw': (41, 2, 3, 1),
    'raw-udp': (41, 2, 3, 17), 'raw6': (41, 10, 3, 58), 'ping': (41, 2, 2, 1),
    'mptcp': (41, 2, 1, 262), 'mptcp6': (41, 10, 1, 262), 'sctp': (41, 2, 1, 132),
    'udplite': (41, 2, 2, 136), 'vsock': (41, 40, 1, 0), 'alg': (41, 38, 5, 0),
    'bluetooth': (41, 31, 3, 1), 'xdp': (41, 44, 3, 0), 'smc': (41, 43, 1, 0),
    'tipc': (41, 30, 1, 0), 'netlink-high': (41, 16 | 1 << 32, 3, 0),
    'netlink-pair': (53, 16, 3, 0, buffer), 'x32-socket': (0x40000000 + 41, 2, 1, 0),
    'x32-getpid': (0x40000000 + 39,), 'tiocsti': (16, 0, 0x5412, b'x'),
    'tiocsti-high': (16, 0, 0x5412 | 1 << 32, b'x'), 'ip-options': None, 'routing-header': None,
    'ia32-getpid': None, 'broadcast': None, 'interface': None, 'interface6': None,
    'inotify-open': (254, 0, b'/usr/bin', 0x20), 'inotify-read': (254, 0, b'/usr/bin', 0x11),
    'dnotify': None, 'dnotify-high': None, 'lease': None,
    'mq_open': (240, b'windlass-test', 0o102, 0o600, 0), 'mq_unlink': (241, b'windlass-test'),
}
def long(value):
    return ctypes.c_long(value) if isinstance(value, int) else value
def ip_options():
    s = socket.socket(socket.AF_INET)
    s.setsockopt(0, 4, bytes([131, 7, 4, 127, 0, 0, 1, 0]))
def routing_header():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(41, 57, bytes([0, 2, 4, 0, 0, 0, 0, 0]) + bytes(15) + bytes([1]))
def broadcast():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(1, 6, 1)
def interface():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(0, 50, bytes(4))
def interface6():
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(41, 76, bytes(4))
def dnotify(high=0):
    watch = os.open('/usr/bin', os.O_RDONLY)
    if libc.syscall(72, watch, ctypes.c_long(1026 | high), 1) < 0:
        raise OSError(ctypes.get_errno(), 'fcntl')
def lease():
    with open('leased', 'w'): pass
    if libc.syscall(72, os.open('leased', os.O_RDONLY), 1024, fcntl.F_RDLCK) < 0:
        raise OSError(ctypes.get_errno(), 'fcntl')
def ia32_getpid():
    import mmap
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes([0x53, 0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x5b, 0xc3]))
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = call()
    if result < 0: raise OSError(-result, 'getpid')
special = {'ip-options': ip_options, 'routing-header': routing_header, 'ia32-getpid': ia32_getpid,
    'broadcast': broadcast, 'interface': interface, 'interface6': interface6,
    'dnotify': dnotify, 'lease': lease, 'dnotify-high': lambda: dnotify(1 << 32)}
for name in payload.split() or calls:
    arguments = calls[name]
    child = os.fork()
    if child == 0:
        try:
            if arguments is None:
                special[name]()
                said = 'allowed'
            else:
                ctypes.set_errno(0)
                result = libc.syscall(*[long(argument) for argument in arguments])
                if result == 0 and name.startswith('clone'): os._exit(0)
                said = 'allowed' if result >= 0 else errno.errorcode[ctypes.get_errno()]
        except OSError as error: said = errno.errorcode[error.errno]
        os.write(1, f'{name} {said}\n'.encode())
        os._exit(0)
    os.waitpid(child, 0)
print('end')
