"""Slots of Python objects, read and written in place. Who calls has checked the type of the object."""

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from "slots.h":
    Py_ssize_t bk_slot_offset(object descriptor)
    PyObject **bk_slot(PyObject *owner, Py_ssize_t offset) nogil
    bint bk_is_a(object value, object owner)
    unsigned int bk_version_of(object owner)
    long long bk_number(object value) except? -1
    PyObject *bk_type_of(PyObject *value) nogil
    object bk_new_object(object owner, Py_ssize_t size)


cdef inline bint is_a(object value, object owner):
    """Whether it is an object of this very class or a subclass, whatever the class says of itself; False for None as class."""
    return bk_is_a(value, owner)


cdef inline Py_ssize_t offset_of(object owner, str name) except -1:
    """Where the slot lies in objects of the class."""
    cdef Py_ssize_t offset
    for base in owner.__mro__:
        descriptor = vars(base).get(name)
        if descriptor is not None:
            offset = bk_slot_offset(descriptor)
            if offset > 0:
                return offset
            break
    raise TypeError(f"{owner.__name__}.{name} is no slot")


cdef inline object got(object owner, Py_ssize_t offset):
    """What the slot holds."""
    cdef PyObject *value = bk_slot(<PyObject *>owner, offset)[0]
    if value is NULL:
        raise AttributeError(f"a slot of {type(owner).__name__} is empty")
    return <object>value


cdef inline PyObject *seen(object owner, Py_ssize_t offset) noexcept:
    """What the slot holds, to be compared and not kept; NULL if it is empty."""
    return bk_slot(<PyObject *>owner, offset)[0]


cdef inline bint is_of(PyObject *value, object owner) noexcept:
    """Whether there is an object, and of this very class."""
    return value is not NULL and bk_type_of(value) == <PyObject *>owner


cdef inline long long number(object owner, Py_ssize_t offset) except? -1:
    """The integer that the slot holds; OverflowError beyond 64 bits."""
    return bk_number(got(owner, offset))


cdef inline void put(object owner, Py_ssize_t offset, object value):
    """Let the slot hold ``value``."""
    cdef PyObject **place = bk_slot(<PyObject *>owner, offset)
    cdef PyObject *before = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *>value
    Py_XDECREF(before)


cdef inline void give(object new_tuple, Py_ssize_t at, object value):
    """Put ``value`` into a tuple that nothing has seen yet, at a place that is still empty."""
    Py_INCREF(value)
    PyTuple_SET_ITEM(new_tuple, at, value)
