/* Where a slot of a Python class lies in its objects, so that compiled code reads and writes it as the interpreter does.

   A class with __slots__ has a member descriptor for each of them, which knows its offset. The offset is the same in subclasses. */
#ifndef BKCLIENT_SLOTS_H
#define BKCLIENT_SLOTS_H

#include <Python.h>
#include <structmember.h>

/* The offset of the slot that `descriptor` stands for; -1 if it is not the descriptor of a slot. */
static inline Py_ssize_t bk_slot_offset(PyObject *descriptor)
{
    PyMemberDef *member;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
        return -1;
    member = ((PyMemberDescrObject *)descriptor)->d_member;
    return member->type == T_OBJECT_EX ? member->offset : -1;
}

static inline PyObject **bk_slot(PyObject *owner, Py_ssize_t offset)
{
    return (PyObject **)((char *)owner + offset);
}

/* The version of a class, which is another one whenever any of its attributes changes; 0 if it has none. */
static inline unsigned int bk_version_of(PyObject *type)
{
    return ((PyTypeObject *)type)->tp_version_tag;
}

/* The value of an integer; raises OverflowError beyond 64 bits, TypeError for what is none. Most have one digit, and need no call. */
static inline long long bk_number(PyObject *value)
{
    if (PyLong_CheckExact(value)) {
#if PY_VERSION_HEX >= 0x030c0000
        if (PyUnstable_Long_IsCompact((PyLongObject *)value))
            return (long long)PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
        if (Py_SIZE(value) == 1)
            return (long long)((PyLongObject *)value)->ob_digit[0];
#endif
    }
    return PyLong_AsLongLong(value);
}

static inline PyObject *bk_type_of(PyObject *value)
{
    return (PyObject *)Py_TYPE(value);
}

/* An object of a class whose slots are all empty, without its constructor; of a tuple with `size` places, empty as well. */
static inline PyObject *bk_new_object(PyObject *type, Py_ssize_t size)
{
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
}

static inline int bk_is_a(PyObject *value, PyObject *type)
{
    return PyType_Check(type) && PyObject_TypeCheck(value, (PyTypeObject *)type);
}

#endif
