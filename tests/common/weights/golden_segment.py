"""Prints the expected values of format_test.cc's GoldenBytes, built from the tables of FORMAT.md without the C++ code.

Run: python3 tests/common/weights/golden_segment.py   (needs libxxhash, as the build does)
"""
import ctypes, struct
x=ctypes.CDLL('libxxhash.so.0'); x.XXH3_64bits.restype=ctypes.c_uint64; x.XXH3_64bits.argtypes=[ctypes.c_char_p,ctypes.c_size_t]
H=lambda b:x.XXH3_64bits(bytes(b),len(b))
up=lambda n,a:-(-n//a)*a
# name, dtype, layout, rows, cols; bytes of 64 packed rows and of a row; values of scales and exceptions, or none
T=[("bf16_packed",1,1,3,6,64*8*2,12,None),("bf16_rows",1,0,70,2,None,4,None),("f32_rows",0,0,1,5,None,20,None),
   ("fp8_packed",2,1,130,129,64*132,129,(2*2,3*2)),("i8_packed",4,1,3,70,64*128,70,(64,64)),
   ("q4k_packed",8,1,5,256,1024+64*128,144,None),("q8_rows",5,0,66,64,None,2*34,None)]
seg=bytearray(81920); off=8192; dirb=b''; tot=0
for t,(name,dt,lay,r,c,group,row,extra) in enumerate(T):
    sl=group if lay else 64*row
    n=up(r,64)//64*group if lay else r*row
    d=bytes((i*7+t)%119 for i in range(n)); seg[off:off+n]=d
    hs=[H(d[i:i+sl]) for i in range(0,n,sl)]
    so=sb=xo=xb=0
    if extra:
        so=up(off+n,64); s=struct.pack('<%df'%extra[0],*range(1,1+extra[0])); sb=len(s); seg[so:so+sb]=s; hs.append(H(s))
        xb=4*extra[1]; xo=up(so+sb,64); seg[xo:xo+xb]=b'\xff'*xb; hs.append(H(b'\xff'*xb))
    dirb+=struct.pack('<112sIIqqqqqqqqQII',name.encode(),dt,lay,r,c,off,n,so,sb,xo,xb,H(struct.pack('<%dQ'%len(hs),*hs)),0,0)
    tot+=n+sb+xb; off=up(xo+xb if xo else off+n,4096)
assert off==len(seg),off
seg[4096:4096+len(dirb)]=dirb
spec=bytearray(416); spec[:11]=b'deepseek_v3'
def q(o,v): spec[o:o+8]=struct.pack('<q',v)
def d(o,v): spec[o:o+8]=struct.pack('<d',v)
q(32,6);q(40,1); q(144,1);q(152,1);q(160,1); d(192,1);d(200,1e-6);d(208,1e-6);d(216,50000)
d(224,1);d(232,32);d(240,1)
def header(state,loaded,hc): return struct.pack('<8sIIQ40sqqqqqqQQ',b'MEOSTW01',3,state,3,b'00112233445566778899aabbccddeeff',len(seg),4096,len(T),8192,loaded,tot,H(dirb),hc)+bytes(spec)
h=header(2,tot,H(header(0,0,0))); seg[:len(h)]=h
print(h[:128].hex()); e=dirb[3*200:4*200]; print(e[:16].hex(), e[112:].hex()); print(hex(H(seg)))
